"""What methods share: members, streams, dropout, windows, microbatches, attention, and how a trained one is read."""
