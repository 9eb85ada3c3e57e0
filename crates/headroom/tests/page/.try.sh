export HEADROOM=/work/page/target/release/headroom PAGE_FROM_DISK=1
exec timeout 280 node --test "$@" page.test.js
