from scrapy.exceptions import NotConfigured


class ReportAddon:
    """Wires the report, if there is a file for it."""

    def update_settings(self, settings):
        if not settings.get("REPORT_FILE"):
            raise NotConfigured("REPORT_FILE is not set")
        settings.add_to_list("REPORT_FIELDS", "stock")
        settings.set_in_component_priority_dict(
            "ITEM_PIPELINES", "reports.pipelines.CompletePipeline", 10
        )
        settings.setdefault_in_component_priority_dict(
            "EXTENSIONS", "reports.extensions.Report", 500
        )
