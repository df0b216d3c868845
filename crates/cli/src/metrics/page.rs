//! The page: its files, who may have it, and what a browser may do with it.
//!
//! Decides: that it needs nothing but this port (no build step, nothing from elsewhere), and that other web pages cannot read it: by their own
//! name, to which a browser is led here (DNS rebinding), they are refused (`crate::http`); as a part of another page it is not shown.
//! Leaves to others: what is in it (`overview`), the port (`http`).

/// A file of the page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asset {
    path: &'static str,
    /// Its media type.
    pub(super) kind: &'static str,
    /// Its contents.
    pub(super) body: &'static str,
}

/// Where the data are.
pub(super) const OVERVIEW: &str = "/overview.json";

static ASSETS: [Asset; 3] = [
    Asset { path: "/", kind: "text/html; charset=utf-8", body: include_str!("page/page.html") },
    Asset { path: "/page.css", kind: "text/css; charset=utf-8", body: include_str!("page/page.css") },
    Asset { path: "/page.js", kind: "text/javascript; charset=utf-8", body: include_str!("page/page.js") },
];

/// Of every answer: scripts and styles of this port alone, in no frame, for no other page, kept by nobody.
pub(super) const HEADERS: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n";

pub(super) const ASK_BY_ADDRESS: &str = "the page is shown to who asks by an IP address, by localhost, or by the name that --http has\n";

/// The file at a path.
pub(super) fn asset(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}
