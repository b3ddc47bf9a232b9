"""History: files of metrics, snapshots, and events, and the forecasts made from them."""
