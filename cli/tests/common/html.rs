//! What is in a page.

use std::path::Path;

/// The JSON inside a page.
#[track_caller]
pub fn inside(page: &Path) -> serde_json::Value {
    let html = std::fs::read_to_string(page).expect("written");
    assert!(
        html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"),
        "{}",
        page.display()
    );
    let data = html
        .split("id=\"foreread-json\">")
        .nth(1)
        .and_then(|rest| rest.split("</script>").next());
    serde_json::from_str(data.expect("the data")).expect("JSON")
}
