-- Questions to a ledger, for DuckDB. From the folder that `heliotrope epp --ledger-dir` wrote: duckdb < examples/ledger.sql
-- Parquet holds everything up to the last whole hour (or 32 MiB); `heliotrope ledger` shows the present hour as well.
CREATE VIEW ledger AS SELECT * FROM read_parquet('parquet/*/*.parquet', union_by_name = true);

-- Energy and grams per tenant and day. Grams of different signals stay apart; joules without grams are told.
SELECT date_trunc('day', slot_start) AS day, tenant, signal_type, emission_factor,
       sum(requests) AS requests,
       (sum(millijoules) / 1000 + coalesce(sum(host_joules), 0)) / 3.6e6 AS it_kwh,
       sum(grams_co2e) AS grams_co2e
FROM ledger WHERE line = 'request' GROUP BY ALL ORDER BY ALL;

-- Whose energy it was, per region: the lines add up to what the counters counted.
SELECT region, line, sum(millijoules) / 1000 AS joules,
       100 * sum(millijoules) / sum(sum(millijoules)) OVER (PARTITION BY region) AS percent
FROM ledger GROUP BY region, line ORDER BY region, line;

-- Joules per output token by variant and arm, over requests that a counter covered and whose tokens the engine told.
SELECT variant, arm, sum(millijoules) / 1000 / sum(output_tokens) AS joules_per_token
FROM ledger WHERE line = 'request' AND measured AND without_usage = 0 AND output_tokens > 0 GROUP BY ALL ORDER BY ALL;

-- What has no grams, and why.
SELECT region, CASE WHEN NOT measured THEN 'no energy counter' WHEN region IS NULL THEN 'region unknown'
                    WHEN pue IS NULL THEN 'no RegionProfile' ELSE 'no fresh signal' END AS reason,
       sum(requests) AS requests, sum(millijoules) / 1000 AS joules
FROM ledger WHERE grams_co2e IS NULL GROUP BY ALL ORDER BY ALL;
