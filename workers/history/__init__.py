"""History: metrics, snapshots, and events as files, and the forecasts made from them."""
