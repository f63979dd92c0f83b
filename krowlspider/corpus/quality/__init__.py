"""Pure: judge a text by named rules, each with a measure and a limit."""
