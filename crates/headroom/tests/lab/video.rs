//! A video through the lab: a real encoder at one end, a real decoder at the other, in clear
//! and through ESP, over a link that loses packets.

use crate::common::{Ground, array, number, text};
use headroom_testing::privileged;
use serde_json::Value;

#[test]
fn a_video_is_encoded_sent_counted_and_decoded() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("video");
    ground.write(
        "p.toml",
        "stacks = [\"video\", \"video/esp(des-cbc,hmac-sha1)\"]\nrepetitions = 2\nfamily = \"ipv4\"\n\
         link = \"10mbit,loss=5%\"\n[[workload]]\nkind = \"realtime\"\nrate = \"220kbit\"\nseconds = 3\n",
    );
    let results = ground.measure("p.toml");
    let samples = array(&results, "samples");
    assert_eq!(samples.len(), 4, "{results}");
    let mut lost_of_all = 0.0;
    for sample in samples {
        assert_eq!(sample["ok"], Value::Bool(true), "{sample}");
        assert!(number(sample, "seconds") > 0.0, "{sample}");
        let stream = &sample["realtime"];
        let (sent, arrived) = (number(stream, "sent"), number(stream, "arrived"));
        let lost = number(stream, "lost");
        assert!(arrived > 0.0 && sent - arrived - lost == 0.0, "{sample}");
        lost_of_all += lost;
        // three seconds have 75 pictures; where a packet is lost some of them are, too
        let frames = number(stream, "frames");
        assert!(frames > 0.0 && frames <= 75.0, "{sample}");
        for rate in ["mean_bps", "lowest_bps", "highest_bps", "jitter_s"] {
            assert!(number(stream, rate) > 0.0, "{rate}: {sample}");
        }
        assert!(number(stream, "lowest_bps") <= number(stream, "highest_bps"), "{sample}");
        assert!(stream["delay"].is_null(), "{sample}");
        for side in ["client", "server"] {
            assert!(number(&sample["cpu_seconds"], side) > 0.0, "{sample}");
        }
        assert!(number(&sample["usage"], "to_server_bytes") > 0.0, "{sample}");
    }
    // of 400 packets and more one in twenty
    assert!(lost_of_all > 0.0, "{results}");
    let seen = |stack: &str| {
        let row = array(&results, "clear_text").iter().find(|row| text(row, "stack") == stack);
        row.is_some_and(|row| row["marker_seen"] == Value::Bool(true))
    };
    assert!(seen("video") && !seen("video/esp(des-cbc,hmac-sha1)"), "{}", results["clear_text"]);
}

#[test]
fn a_video_that_no_encoder_could_make_is_refused() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("video-refused");
    ground.write(
        "p.toml",
        "stacks = [\"video\"]\nrepetitions = 2\n[[workload]]\nkind = \"realtime\"\nrate = \"8kbit\"\nseconds = 1\n",
    );
    let ended = ground.end_of(ground.headroom("lab run p.toml --out out"));
    ended.assert_says(1, &["video", "16 kbit/s"]);
    ended.assert_nothing_left();
}
