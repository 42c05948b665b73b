"""The console: pages for people, in the API's process. They read and write as the API's routes do, and add nothing."""
