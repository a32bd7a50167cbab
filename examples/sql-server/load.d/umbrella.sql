SELECT count(*) FROM lineitem AS a JOIN lineitem AS b ON a.l_orderkey = b.l_orderkey AND a.l_comment < b.l_comment;
