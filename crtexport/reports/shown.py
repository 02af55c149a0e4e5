"""Reports as notebooks show them."""

from __future__ import annotations

from html import escape

from crtexport.reports.figures import Report


class ShownReport(Report, frozen=True, kw_only=True):
    """A report that notebooks show as its page."""

    def _repr_html_(self) -> str:
        from crtexport.reports.page.html import render  # noqa: PLC0415  (for notebooks only)

        # A page of its own inside of the notebook's, so that neither's styles reach the other.
        page = escape(render(self))
        return f'<iframe srcdoc="{page}" width="100%" height="640" frameborder="0"></iframe>'
