\set key random(1, 1500)
SELECT c_name, c_acctbal FROM customer WHERE c_custkey = :key;
