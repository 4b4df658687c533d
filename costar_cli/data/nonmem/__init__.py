"""Data of pharmacometrics: tables of doses and observations, as NONMEM, Monolix, nlmixr2 and ADPPK have them."""
