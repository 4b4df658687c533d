"""What verbs do, without their flags: files in, work done, results shown; also called by the benchmark."""
