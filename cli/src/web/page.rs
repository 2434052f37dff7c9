//! The page's files, which are part of the program.

/// A file of the page.
#[derive(Debug)]
pub(super) struct Asset {
    pub(super) path: &'static str,
    pub(super) content_type: &'static str,
    pub(super) text: &'static str,
}

const fn asset(path: &'static str, content_type: &'static str, text: &'static str) -> Asset {
    Asset { path, content_type, text }
}

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

pub(super) const ASSETS: [Asset; 6] = [
    asset("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    asset("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    asset("/page.js", JAVASCRIPT, include_str!("page/page.js")),
    asset("/chart.js", JAVASCRIPT, include_str!("page/chart.js")),
    asset("/format.js", JAVASCRIPT, include_str!("page/format.js")),
    asset("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_needs_nothing_from_elsewhere() {
        let size: usize = ASSETS.iter().map(|asset| asset.text.len()).sum();
        assert!(size < 200_000, "{size} bytes");
        for asset in ASSETS {
            // Names of XML, which nobody fetches.
            let text = asset.text.replace("http://www.w3.org/2000/svg", "");
            for reference in ["http://", "https://", "\"//", "@import", "url("] {
                assert!(!text.contains(reference), "{}: {reference}", asset.path);
            }
        }
    }

    #[test]
    fn the_page_has_no_scripts_or_styles_that_its_policy_forbids() {
        let html = ASSETS[0].text;
        for part in [" style=", " onclick=", "<style", "javascript:"] {
            assert!(!html.contains(part), "{part}");
        }
        for asset in ASSETS.iter().filter(|asset| asset.content_type == JAVASCRIPT) {
            // Names and messages come from others: they are set as text.
            for part in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!asset.text.contains(part), "{}: {part}", asset.path);
            }
        }
    }
}
