"""The app's pages, one a file, each one function (app) that fills the tab it is called in. Discovered by file name."""
