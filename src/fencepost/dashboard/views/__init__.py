"""One module per view: each gathers what its document needs. `registry` names them all."""
