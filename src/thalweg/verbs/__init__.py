"""What a user does with a session, one file per family of verbs, over the parts that a session is made of."""
