"""Who does the work, and the pages that show it: the project's only Django app."""
