"""JOBDIR may hold the name of the spider."""

from scrapy.settings import Settings

from krowlspider.config.validation import name_jobdir


def test_jobdir_has_the_name_of_its_spider() -> None:
    settings = Settings()
    settings.set("JOBDIR", "jobs/{spider}", priority="project")
    name_jobdir(settings, "books")
    assert (settings["JOBDIR"], settings.getpriority("JOBDIR")) == ("jobs/books", 20)
    name_jobdir(settings, "quotes")
    assert settings["JOBDIR"] == "jobs/books"
