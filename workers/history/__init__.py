"""What has been: metrics, snapshots and events as files, and the forecasts made of them."""
