"""Language-model providers: each module serves the LanguageModel port."""
