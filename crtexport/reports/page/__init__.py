"""One report as a page of HTML: self-contained, without scripts."""
