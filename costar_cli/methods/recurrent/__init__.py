"""The recurrent baselines: RMSN, CRN and G-Net, on one variational LSTM."""
