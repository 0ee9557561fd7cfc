"""The four ports, the protocol of the ledger, and the records that pass through them."""
