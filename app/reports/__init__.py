"""Folds over the ledger: metrics, plots, exports.  Reads only; never touches the engine."""
