"""The page: shows the runs below a folder in a browser, live. A reader of run directories. Guide: docs/page.md"""
