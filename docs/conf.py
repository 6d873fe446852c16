"""How the pages are built: Markdown by MyST, the theme furo, nothing fetched from elsewhere."""

from importlib.metadata import version as installed_version

project = "kilowait"
author = "the kilowait developers"
copyright = f"2026, {author}"
release = version = installed_version("kilowait")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False}
default_role = "code"
nitpicky = False

html_theme = "furo"
html_title = f"kilowait {release}"
html_show_sphinx = False
html_copy_source = False
