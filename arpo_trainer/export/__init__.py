"""Export of trained models: any checkpoint of the trainer becomes a plain Hugging Face folder with a model card."""
