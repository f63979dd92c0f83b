"""Pure: the main text of a page. Leaves its main part in the tree, and takes out lines of noise."""
