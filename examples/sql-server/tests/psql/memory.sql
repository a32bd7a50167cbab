-- umbrella has 8 MiB of memory, and 1 MiB of disk for spill files.
SELECT count(*) FROM lineitem AS a JOIN lineitem AS b ON a.l_orderkey = b.l_orderkey AND a.l_comment < b.l_comment AND a.l_shipinstruct <> b.l_shipmode;
SELECT max(at) FROM (SELECT row_number() OVER (ORDER BY l_comment, l_orderkey) AS at FROM lineitem) AS sorted;
SELECT count(*) FROM region;
