"""The Grafana dashboards in deploy/observability/dashboards, made from the families: `python -m metrics.dashboards`."""
