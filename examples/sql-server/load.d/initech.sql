SELECT max(at) FROM (SELECT row_number() OVER (ORDER BY l_comment, l_orderkey) AS at FROM lineitem) AS sorted;
