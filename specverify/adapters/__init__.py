"""Real samplers of other projects behind the contract. Imports them only when the user has them."""
