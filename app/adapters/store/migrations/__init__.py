"""The ledger's schema, revision by revision; each is tested up, down, and one version behind."""
