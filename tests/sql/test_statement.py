"""A statement runs only if it is one query over the tables of the crawl."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import duckdb
import pytest

from krowlspider.errors import KrowlError
from krowlspider.sql.database import database
from krowlspider.sql.statement import STATEMENT_MAX, checked
from krowlspider.sql.tables import SCHEMAS
from tests.support.tables import table

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "the secret of the machine"
# FILE is a file of the machine, NEW one that must not appear.
READS = [
    "SELECT * FROM read_csv('FILE', header = false)",
    "SELECT * FROM read_csv_auto('FILE')",
    "SELECT content FROM read_text('FILE')",
    "SELECT content FROM read_blob('FILE')",
    "SELECT * FROM read_json('FILE')",
    "SELECT * FROM read_ndjson_objects('FILE')",
    "SELECT * FROM read_parquet('FILE')",
    "SELECT * FROM parquet_scan('FILE')",
    "SELECT * FROM parquet_metadata('FILE')",
    "SELECT * FROM parquet_schema('FILE')",
    "SELECT * FROM sniff_csv('FILE')",
    "SELECT * FROM read_duckdb('FILE')",
    "SELECT * FROM 'FILE'",
    'SELECT * FROM "FILE"',
    "FROM 'FILE.csv'",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM read_text('file://FILE')",
    "SELECT * FROM read_csv('https://example.org/x.csv')",
    "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
    "SELECT (SELECT content FROM read_text('FILE'))",
    "WITH t AS (SELECT * FROM read_text('FILE')) SELECT * FROM t",
    "WITH t AS MATERIALIZED (FROM glob('/*')) FROM t UNION ALL FROM t",
    "SELECT * FROM queue, LATERAL (SELECT * FROM read_text('FILE'))",
    "SELECT * FROM queue WHERE url IN (SELECT content FROM read_text('FILE'))",
    "SELECT * FROM queue ORDER BY (SELECT content FROM read_text('FILE'))",
    "SELECT * FROM query('SELECT content FROM read_text(''FILE'')')",
    "SELECT * FROM query_table('FILE')",
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM read_text(''FILE'')'))",
    "DESCRIBE SELECT * FROM read_text('FILE')",
    "SUMMARIZE SELECT * FROM read_text('FILE')",
    "SELECT getenv('HOME')",
    "SELECT current_setting('secret_directory')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_logs()",
    "SELECT * FROM duckdb_temporary_files()",
    "SELECT * FROM which_secret('s3://x', 's3')",
    "SELECT * FROM pragma_database_size()",
    "SELECT * FROM pg_catalog.pg_settings",
    "SELECT * FROM files.fetch",
    "SELECT * FROM frontier.queue",
    "SELECT * FROM memory.main.queue",
    "SELECT * FROM system.information_schema.tables",
    "CREATE VIEW v AS SELECT * FROM read_text('FILE'); FROM v",
    "CREATE VIEW v AS FROM duckdb_settings(); FROM v",
    "CREATE VIEW v AS SELECT 1; SELECT * FROM read_text('FILE')",
    "CREATE VIEW v AS FROM files.fetch; FROM v",
    "SHOW DATABASES",
    "SHOW VARIABLES",
]
WRITES = [
    "COPY queue TO 'NEW'",
    "COPY (SELECT 1) TO 'NEW' (FORMAT parquet)",
    "WITH t AS (COPY (SELECT 1) TO 'NEW') SELECT * FROM t",
    "EXPORT DATABASE 'NEW'",
    "IMPORT DATABASE 'NEW'",
    "ATTACH 'NEW' AS other",
    "ATTACH 'NEW' (TYPE sqlite)",
    "DETACH memory",
    "USE files",
    "CREATE TABLE x (a INTEGER)",
    "CREATE TABLE x AS SELECT 1",
    "CREATE OR REPLACE VIEW queue AS SELECT 1",
    "CREATE SECRET s (TYPE s3, KEY_ID 'x', SECRET 'y')",
    "CREATE MACRO f() AS TABLE SELECT * FROM read_text('FILE')",
    "CREATE FUNCTION f() AS 1",
    "CREATE TEMP TABLE x AS SELECT * FROM queue",
    "DROP VIEW queue",
    "ALTER VIEW queue RENAME TO x",
    "INSERT INTO queue VALUES (1)",
    "UPDATE queue SET url = ''",
    "DELETE FROM queue",
    "TRUNCATE queue",
    "WITH t AS (INSERT INTO queue VALUES (1) RETURNING *) SELECT * FROM t",
    "WITH t AS (DELETE FROM queue RETURNING *) SELECT * FROM t",
    "WITH t AS (UPDATE queue SET url = '' RETURNING *) SELECT * FROM t",
    "MERGE INTO queue USING page_now ON true WHEN MATCHED THEN DELETE",
    "INSTALL httpfs",
    "INSTALL httpfs FROM community",
    "LOAD 'NEW'",
    "FORCE INSTALL spatial",
    "SET memory_limit = '100GB'",
    "SET GLOBAL enable_external_access = true",
    "RESET lock_configuration",
    "SET VARIABLE x = 1",
    "PRAGMA enable_profiling = 'json'",
    "PRAGMA database_list",
    "CALL enable_logging()",
    "CALL pragma_version()",
    "CHECKPOINT",
    "VACUUM",
    "BEGIN",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "EXPLAIN ANALYZE SELECT 1",
    "SELECT 1; COPY queue TO 'NEW'",
    "CREATE VIEW v AS SELECT 1; COPY v TO 'NEW'",
    "CREATE VIEW v AS SELECT 1; COPY queue TO 'NEW'; FROM v",
    "CREATE VIEW v AS COPY queue TO 'NEW'; FROM v",
    "CREATE VIEW v AS WITH t AS (DELETE FROM queue RETURNING *) FROM t; FROM v",
    "CREATE VIEW v AS SELECT 1 WITH CHECK OPTION; FROM v",
    "CREATE VIEW queue AS SELECT 1; FROM queue",
    "CREATE VIEW files.v AS SELECT 1; SELECT 1",
    'CREATE VIEW "v" AS SELECT 1; FROM v',
    "CREATE VIEW v(a) AS SELECT 1; FROM v",
    "CREATE TABLE v AS SELECT 1; FROM v",
    "CREATE MACRO v AS 1; SELECT 1",
    "CREATE VIEW v AS SELECT 1; DROP VIEW v; SELECT 1",
    "CREATE VIEW v AS SELECT 1; CREATE VIEW V AS SELECT 2; FROM v",
    "CREATE VIEW v AS FROM v; FROM v",
    f"{'CREATE VIEW v AS SELECT 1; ' * 51}FROM v",
    "COPY queue TO 'NEW'; SELECT 1",
    "COMMENT ON VIEW queue IS 'x'",
    "SELECT write_log('x')",
    "",
    "-- nothing",
    ";",
]


def with_files(text: str, folder: Path) -> str:
    return text.replace("FILE", str(folder / "secret")).replace("NEW", str(folder / "new"))


@table("text", [*READS, *WRITES])
def test_all_but_a_query_over_the_tables_is_refused(text: str):
    with pytest.raises(KrowlError) as refused:
        checked(text, SCHEMAS)
    assert "\n" not in str(refused.value)


def test_the_database_itself_reads_and_writes_no_other_files(tmp_path: Path):
    """What the check of a statement might let through ends here."""
    (tmp_path / "secret").write_text(SECRET)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    connection = database(100_000_000, scratch, {}, {})
    for text in [*READS, *WRITES]:
        with suppress(duckdb.Error), connection.cursor() as cursor:
            done = cursor.execute(with_files(text, tmp_path))
            assert done is None or SECRET not in str(done.fetchall())
    assert not (tmp_path / "new").exists()
    with pytest.raises(duckdb.Error, match="locked"):
        connection.execute("SET enable_external_access = true")
    connection.close()


@table(
    ("text", "tables"),
    [
        ("SELECT 1", ""),
        ("FROM QUEUE", "queue"),
        ("SELECT * FROM main.queue q JOIN page_now USING (url);", "queue page_now"),
        ('SELECT * FROM "ccindex"."ccindex"', "ccindex"),
        ("WITH t AS (SELECT 1) SELECT * FROM t, host_now", "host_now"),
        ("SELECT * FROM range(3), unnest([1, 2]) u", ""),
        ("WITH queue AS (SELECT * FROM queue) SELECT * FROM queue", "queue"),
        ("VALUES (1)", ""),
        ('SELECT * FROM "fetch" TABLESAMPLE BERNOULLI (5)', "fetch"),
        ("DESCRIBE queue", "queue"),
        ("SHOW queue", "queue"),
        ("SHOW TABLES", ""),
        ("SUMMARIZE host", "host"),
        ("SELECT * FROM information_schema.columns", ""),
        ("FROM queue PIVOT (count(*) FOR depth IN (0, 1))", "queue"),
        ("WITH RECURSIVE t AS (SELECT 1 UNION ALL SELECT * FROM t) FROM t LIMIT 3", ""),
        ("SELECT 'COPY queue TO ''x''', 'read_text(1)'", ""),
        (
            "create or replace temp view a as from queue; CREATE VIEW b AS FROM a, host; FROM B",
            "queue host",
        ),
    ],
)
def test_a_query_names_its_tables(text: str, tables: str):
    assert checked(text, SCHEMAS).tables == set(tables.split())


@table(
    ("text", "said"),
    [
        ("SELEC 1", 'line 1, column 1: syntax error at or near "SELEC"'),
        ("SELECT *\nFROM nowhere", "line 2, column 6: there is no table 'nowhere'; there are "),
        ("SELECT 1; SELECT 2", "give one SELECT, not 2 statements"),
        ("DROP TABLE x", "give one SELECT, not DROP"),
        ("SELECT 'a", "line 1, column 8: unterminated"),
        ("SELECT * FROM fetch", 'FETCH is a word of SQL: write "fetch", or capture'),
        (f"SELECT '{'x' * STATEMENT_MAX}'", "characters"),
        ("SELECT '\0'", "zero byte"),
        ("SELECT '\udcff'", "not UTF-8"),
        (" ", "the SQL is empty"),
        ("-- nothing", "the SQL is empty"),
        ("CREATE TABLE v AS SELECT 1; FROM v", "a view before it is CREATE VIEW name AS SELECT"),
        ("CREATE VIEW v AS\nFROM nowhere; FROM v", "line 2, column 6: there is no table 'nowhere'"),
        ("CREATE VIEW v AS FROM queue;\nFROM w", "line 2, column 6: there is no table 'w'"),
        ("SELECT " + "abs(" * 900 + "1" + ")" * 900, "nested too deeply"),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, ""),
    ],
)
def test_an_error_names_its_place_in_one_line(text: str, said: str):
    with pytest.raises(KrowlError) as refused:
        checked(text, SCHEMAS)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
