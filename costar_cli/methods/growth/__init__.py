"""Growth GRU: a gated recurrent network whose states become effects that are rolled out step by step."""
