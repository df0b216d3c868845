//! The picture as a page: the names of the columns stay in sight, and what the pointer is on is told in full.
//!
//! Decides: the page around the drawing. The page has all that it needs in itself, and works without its script, except for the details.
//! Leaves to others: the drawing (`draw`).

use super::Picture;
use super::draw;

const PAGE_STYLE: &str = "\
body { margin: 0; background: #fff; color: #1d2329; font: 13px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { body { background: #14191d; color: #e3e7ea; } }
.head { position: sticky; top: 0; z-index: 1; border-bottom: 1px solid #8a939c; }
#detail { position: sticky; bottom: 0; margin: 0; padding: 8px 12px; min-height: 5em; max-height: 30vh; overflow: auto; \
white-space: pre-wrap; background: #eef1f3; border-top: 1px solid #8a939c; font: 12px ui-monospace, monospace; }
@media (prefers-color-scheme: dark) { #detail { background: #20272d; } }
svg { display: block; }";

/// Shows the title of whatever the pointer is on; a click keeps it there until the next.
const SCRIPT: &str = "\
const detail = document.getElementById('detail');
let kept = null;
const titled = target => { const owner = target.closest('[data-told]'); return owner && owner.querySelector('title'); };
const tell = title => { if (title) detail.textContent = title.textContent; };
document.addEventListener('mouseover', event => { if (!kept) tell(titled(event.target)); });
document.addEventListener('click', event => { kept = titled(event.target); tell(kept); });";

/// The page.
pub(super) fn html(picture: &Picture) -> String {
    let (head, body) = (draw::head(picture), draw::body(picture));
    let style = draw::STYLE;
    let title = &picture.title;
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Cistern: {title}</title>\n<style>\n{PAGE_STYLE}\n{style}</style>\n\
         </head>\n<body>\n<div class=\"head\">\n{head}\n</div>\n{body}\n\
         <pre id=\"detail\">Point at an arrow or a bar to see all of it; click to keep it here.</pre>\n\
         <script>\n{SCRIPT}\n</script>\n</body>\n</html>\n"
    )
}
