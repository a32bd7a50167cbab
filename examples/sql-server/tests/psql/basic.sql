-- What a tenant sees, and what it is told.
SELECT count(*) FROM nation;
SELECT n_name, n_regionkey FROM nation WHERE n_regionkey = 3 ORDER BY n_name;
SELECT 1 AS one\; SELECT 'a;b' AS two;
SHOW statement_timeout;
BEGIN;
SELECT 1 / 0;
SELECT 1;
ROLLBACK;
SELECT count(*) FROM bursar_memory() WHERE path NOT LIKE '/acme%';
SELECT kind, max FROM bursar_memory() WHERE path = '/acme';
SELECT state, tries FROM bursar_history() WHERE state = 'running' AND operator IS NULL;
SELECT count(*) FROM bursar_admissions() WHERE path NOT LIKE '/acme%';
-- Mistakes.
SELEC 1;
SELECT * FROM nowhere;
SELECT nothing FROM nation;
SELECT nonesuch(1);
SELECT CAST('x' AS int);
SET work_mem = '1GB';
SET statement_timeout = 'soon';
-- What a tenant may not do.
SET datafusion.runtime.memory_limit = '64G';
CREATE TABLE mine AS SELECT 1;
COPY nation TO '/tmp/nation.csv';
INSERT INTO nation SELECT * FROM nation;
CREATE EXTERNAL TABLE passwd STORED AS CSV LOCATION '/etc/passwd';
-- Timeout.
SET statement_timeout = '50ms';
SELECT count(*) FROM generate_series(1, 1000000000000000) AS a(x) WHERE x % 7 = 8;
SET statement_timeout = 0;
SELECT count(*) FROM region;
