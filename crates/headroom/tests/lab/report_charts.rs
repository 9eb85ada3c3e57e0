//! Charts of the report as files: the buttons that save them, pressed in a real browser.

use crate::common::browser::{attribute, browser, count, rendered_for};
use crate::common::{Ground, array, number, text};
use serde_json::{Value, json};

/// A kept run, so that nothing is measured here.
const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/data/disturbed-demo.json");

/// Presses all buttons that save a chart, and notes what would be saved. The page's policy forbids
/// scripts to fetch anything, their own data included, so files are taken where they get an address.
const PROBE: &str = r#"
const files = [];
URL.createObjectURL = (content) => { files.push({ content }); return 'blob:kept'; };
HTMLAnchorElement.prototype.click = function () { files.at(-1).name = this.download; };
const drawImage = CanvasRenderingContext2D.prototype.drawImage;
let colours = 0;
CanvasRenderingContext2D.prototype.drawImage = function (...what) {
  drawImage.apply(this, what);
  const { data } = this.getImageData(0, 0, this.canvas.width, this.canvas.height);
  colours = new Set(new Uint32Array(data.buffer)).size;
};
const problems = () => [...document.querySelectorAll('.save output')].map((one) => one.textContent).join('');
async function press(button) {
  const before = files.length;
  button.click();
  while (files.length === before && !problems()) await new Promise((next) => setTimeout(next, 20));
  const { name, content } = files[before];
  return { label: button.getAttribute('aria-label'), name, type: content.type, content };
}
async function saved([svgButton, pngButton]) {
  const { content: svg, ...svgFile } = await press(svgButton);
  const { content: png, ...pngFile } = await press(pngButton);
  const source = await svg.text();
  const image = new DOMParser().parseFromString(source, 'image/svg+xml');
  const textOf = (name) => [...image.querySelectorAll(`svg > ${name}`)].map((one) => one.textContent).join('|');
  return {
    svg: {
      ...svgFile, root: image.documentElement.localName, title: textOf('title'), description: textOf('desc'),
      size: ['width', 'height', 'viewBox'].map((name) => image.documentElement.getAttribute(name)).join(' '),
      texts: [...image.querySelectorAll('text')].map((one) => one.textContent),
      lines: image.querySelectorAll('path[stroke-linejoin=round]').length,
      rectangles: image.querySelectorAll('rect').length,
      foreign: ['var(', 'class=', 'style=', 'href', '<script', 'NaN', 'undefined'].filter((word) => source.includes(word)),
    },
    png: { ...pngFile, head: [...new Uint8Array(await png.arrayBuffer()).slice(0, 24)], colours },
  };
}
const note = (found) => {
  // digits, so that no markup of the page changes them
  const bytes = [...new TextEncoder().encode(JSON.stringify(found))];
  document.documentElement.dataset.saved = bytes.map((byte) => byte.toString(16).padStart(2, '0')).join('');
};
(async () => {
  const found = [];
  // an image is decoded beside the page, whose time would pass at once meanwhile
  const waiting = setInterval(() => {}, 1);
  for (const place of document.querySelectorAll('.save')) found.push(await saved(place.querySelectorAll('button')));
  clearInterval(waiting);
  note(found);
})().catch((error) => note([`${error.message} ${problems()}`]));
"#;

#[test]
fn each_chart_can_be_saved_as_svg_and_as_png() {
    let Some(browser) = browser() else { return };
    let ground = Ground::new("report-charts");
    let kept = std::fs::read_to_string(RUN).expect("the kept run");
    let mut results: Value = serde_json::from_str(&kept).expect("JSON");
    results["plan"]["name"] = json!("../a \"run\"/é");
    results["timelines"] = json!([strip("ftp"), strip("<b>&\u{1}")]);
    std::fs::create_dir(ground.path("out")).expect("a folder");
    ground.write("out/results.json", &results.to_string());
    let rebuilt = ground.end_of(ground.headroom("lab report out"));
    assert_eq!(rebuilt.code, Some(0), "{rebuilt}");

    let page = std::fs::read_to_string(ground.path("out/report.html")).expect("a page");
    let (before, after) = page.rsplit_once("</body>").expect("the end of the page");
    std::fs::create_dir(ground.path("probed")).expect("a folder");
    let probed = format!("{before}<script>{{{PROBE}}}</script></body>{after}");
    ground.write("probed/report.html", &probed);
    let page = rendered_for(&ground, &browser, "probed", 3600);
    assert_eq!(count(&page, "data-errors"), 0);
    let saved = attribute(&page, "data-saved").expect("all buttons were pressed in time");
    let saved: Vec<Value> = serde_json::from_slice(&bytes(&saved)).expect("JSON");

    let names = [
        "Overhead on any link",
        "Time at any size",
        "Residuals of the models",
        "Where the time goes, Download, 1 KiB",
    ];
    assert_eq!(saved.len(), names.len(), "{saved:?}");
    assert_eq!(count(&page, "data-charts"), 3, "and the strips");
    for name in names {
        let of_it = |one: &&Value| text(&one["svg"], "title").starts_with(&format!("{name}: "));
        let chart = saved.iter().find(of_it).unwrap_or_else(|| panic!("no {name}: {saved:?}"));
        assert_saved(name, chart);
    }

    // what the page shows beside its charts, and on canvases
    let picture = &saved[0]["svg"];
    assert_eq!(number(picture, "lines") as usize, count(&page, "data-lines"));
    assert_texts(picture, &["Link rate", "Overhead (symmetric-log scale)", "ftps over ftp"]);
    let times = &saved[1]["svg"];
    assert!(number(times, "lines") > 1.0, "one of each stack: {times}");
    assert_texts(times, &["Size of the file", "Time (log scale)", "ftp"]);
    let residuals = &saved[3]["svg"];
    assert_texts(residuals, &["Measured − model (symmetric-log scale)"]);
    let strips = &saved[2]["svg"];
    assert_texts(strips, &["ftp", "40 ms", "moving the file"]);
    assert!(number(strips, "rectangles") > 2.0 * 4.0, "segments of two strips: {strips}");
    // a character that XML lacks is none
    assert!(text(strips, "title").ends_with(": ftp, <b>&\u{fffd}"), "{strips}");
    assert!(text(strips, "description").contains("idle 10 ms"), "{strips}");
}

/// One of 40 ms, with all that strips show.
fn strip(stack: &str) -> Value {
    let kinds = ["connect", "idle", "login", "body"];
    let segments = kinds.iter().enumerate().map(|(nth, kind)| {
        let start = nth as f64 * 0.01;
        json!({ "kind": kind, "start_s": start, "end_s": start + 0.01 })
    });
    json!({ "stack": stack, "workload": "download", "size_bytes": 1024, "session_s": 0.04,
            "segments": segments.collect::<Vec<_>>() })
}

/// The SVG is one, complete and alone; the PNG has twice its size.
fn assert_saved(name: &str, chart: &Value) {
    let (svg, png) = (&chart["svg"], &chart["png"]);
    assert_eq!((text(svg, "type"), text(png, "type")), ("image/svg+xml", "image/png"));
    assert_eq!(text(svg, "root"), "svg", "{svg}");
    assert_eq!(array(svg, "foreign").len(), 0, "{svg}");
    assert!(!text(svg, "description").is_empty(), "{svg}");
    for (file, kind) in [(svg, "SVG"), (png, "PNG")] {
        assert_eq!(text(file, "label"), format!("Save as {kind}: {name}"));
        let of_chart = name.to_lowercase().replace(", ", "-").replace(' ', "-");
        let expected = format!("a-run-{of_chart}.{}", kind.to_lowercase());
        assert_eq!(text(file, "name"), expected);
    }
    let sizes: Vec<u32> = text(svg, "size")
        .split(' ')
        .map(|word| word.parse().unwrap_or_else(|_| panic!("whole numbers: {svg}")))
        .collect();
    let [width, height, 0, 0, same_width, same_height] = sizes[..] else { panic!("{svg}") };
    assert_eq!((width, height), (same_width, same_height), "{svg}");
    assert!(width > 300 && height > 50, "{svg}");
    let head: Vec<u8> = array(png, "head")
        .iter()
        .map(|byte| byte.as_u64().and_then(|byte| byte.try_into().ok()).expect("a byte"))
        .collect();
    // signature; the length of the first chunk, its name, width and height (PNG, IHDR)
    assert_eq!(head[..8], *b"\x89PNG\r\n\x1a\n", "{png}");
    assert_eq!(head[12..16], *b"IHDR", "{png}");
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    assert_eq!((word(16), word(20)), (2 * width, 2 * height), "{png}");
    assert!(number(png, "colours") > 3.0, "it is not blank: {png}");
}

fn assert_texts(svg: &Value, wanted: &[&str]) {
    let texts = array(svg, "texts");
    for text in wanted {
        assert!(texts.iter().any(|one| one == text), "{text}: {texts:?}");
    }
}

/// The bytes of hexadecimal digits.
fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).expect("digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}
