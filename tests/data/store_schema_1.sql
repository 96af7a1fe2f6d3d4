BEGIN TRANSACTION;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "meta" VALUES('schema','1');
CREATE TABLE trials (
    digest TEXT NOT NULL, device TEXT NOT NULL, protocol INTEGER NOT NULL,
    operator TEXT NOT NULL, schedule TEXT NOT NULL, status TEXT NOT NULL,
    samples TEXT NOT NULL, conditions TEXT NOT NULL, error TEXT NOT NULL, created REAL NOT NULL,
    PRIMARY KEY (digest, device, protocol)
);
INSERT INTO "trials" VALUES('digest-00','cpu x2',1,'gemv(m=8, k=8)','schedule 0','WRONG_ANSWER','[]','{"device": "cpu", "threads": 2}','it''s gone',1.79525095969959521289e+09);
INSERT INTO "trials" VALUES('digest-01','cpu x2',1,'gemm(m=8, n=8, k=8)','schedule 1','OK','[2e-06, 2.0199999999999997e-06, 2.04e-06, 2.0599999999999998e-06, 2.08e-06]','{"device": "cpu", "threads": 2}','',1.79525095969969916342e+09);
INSERT INTO "trials" VALUES('digest-02','cpu x2',1,'gemv(m=8, k=8)','schedule 2','OK','[3e-06, 3.0300000000000002e-06, 3.06e-06, 3.09e-06, 3.12e-06]','{"device": "cpu", "threads": 2}','',1.7952509596997430325e+09);
INSERT INTO "trials" VALUES('digest-03','cpu x2',1,'gemm(m=8, n=8, k=8)','schedule 3','OK','[4e-06, 4.0399999999999994e-06, 4.08e-06, 4.1199999999999995e-06, 4.16e-06]','{"device": "cpu", "threads": 2}','',1.79525095969978332527e+09);
INSERT INTO "trials" VALUES('digest-04','cpu x2',1,'gemv(m=8, k=8)','schedule 4','OK','[4.9999999999999996e-06, 5.05e-06, 5.0999999999999995e-06, 5.15e-06, 5.199999999999999e-06]','{"device": "cpu", "threads": 2}','',1.79525095969981813431e+09);
INSERT INTO "trials" VALUES('digest-05','cpu x2',1,'gemm(m=8, n=8, k=8)','schedule 5','CRASHED','[]','{"device": "cpu", "threads": 2}','it''s gone',1.7952509596998491287e+09);
INSERT INTO "trials" VALUES('digest-06','cpu x2',1,'gemv(m=8, k=8)','schedule 6','OK','[7e-06, 7.07e-06, 7.14e-06, 7.2100000000000004e-06, 7.28e-06]','{"device": "cpu", "threads": 2}','',1.79525095969988226886e+09);
INSERT INTO "trials" VALUES('digest-07','cpu x2',1,'gemm(m=8, n=8, k=8)','schedule 7','OK','[8e-06, 8.079999999999999e-06, 8.16e-06, 8.239999999999999e-06, 8.32e-06]','{"device": "cpu", "threads": 2}','',1.7952509596999218464e+09);
INSERT INTO "trials" VALUES('digest-08','cpu x2',1,'gemv(m=8, k=8)','schedule 8','OK','[9e-06, 9.090000000000001e-06, 9.18e-06, 9.270000000000001e-06, 9.36e-06]','{"device": "cpu", "threads": 2}','',1.79525095969995594023e+09);
INSERT INTO "trials" VALUES('digest-09','cpu x2',1,'gemm(m=8, n=8, k=8)','schedule 9','OK','[9.999999999999999e-06, 1.01e-05, 1.0199999999999999e-05, 1.03e-05, 1.0399999999999999e-05]','{"device": "cpu", "threads": 2}','',1.79525095970001530645e+09);
INSERT INTO "trials" VALUES('digest-10','cpu x2',1,'gemv(m=8, k=8)','schedule 10','WRONG_ANSWER','[]','{"device": "cpu", "threads": 2}','it''s gone',1.79525095970004558562e+09);
INSERT INTO "trials" VALUES('digest-11','cpu x2',1,'gemm(m=8, n=8, k=8)','schedule 11','OK','[1.2e-05, 1.2120000000000001e-05, 1.224e-05, 1.236e-05, 1.248e-05]','{"device": "cpu", "threads": 2}','',1.79525095970007729528e+09);
INSERT INTO "trials" VALUES('digest-12','cpu x2',1,'gemv(m=8, k=8)','schedule 12','OK','[1.3e-05, 1.313e-05, 1.326e-05, 1.3389999999999999e-05, 1.352e-05]','{"device": "cpu", "threads": 2}','',1.79525095970010828971e+09);
INSERT INTO "trials" VALUES('digest-13','cpu x2',1,'gemm(m=8, n=8, k=8)','schedule 13','OK','[1.4e-05, 1.414e-05, 1.428e-05, 1.4420000000000001e-05, 1.456e-05]','{"device": "cpu", "threads": 2}','',1.79525095970013904567e+09);
INSERT INTO "trials" VALUES('digest-14','cpu x2',1,'gemv(m=8, k=8)','schedule 14','OK','[1.4999999999999999e-05, 1.5149999999999999e-05, 1.53e-05, 1.545e-05, 1.56e-05]','{"device": "cpu", "threads": 2}','',1.79525095970017051693e+09);
INSERT INTO "trials" VALUES('digest-15','cpu x2',1,'gemm(m=8, n=8, k=8)','schedule 15','CRASHED','[]','{"device": "cpu", "threads": 2}','it''s gone',1.79525095970019793511e+09);
INSERT INTO "trials" VALUES('digest-16','cpu x2',1,'gemv(m=8, k=8)','schedule 16','OK','[1.7e-05, 1.717e-05, 1.734e-05, 1.751e-05, 1.768e-05]','{"device": "cpu", "threads": 2}','',1.79525095970022821427e+09);
INSERT INTO "trials" VALUES('digest-17','cpu x2',1,'gemm(m=8, n=8, k=8)','schedule 17','OK','[1.8e-05, 1.8180000000000002e-05, 1.836e-05, 1.8540000000000002e-05, 1.872e-05]','{"device": "cpu", "threads": 2}','',1.79525095970027279848e+09);
INSERT INTO "trials" VALUES('digest-18','cpu x2',1,'gemv(m=8, k=8)','schedule 18','OK','[1.8999999999999998e-05, 1.9189999999999998e-05, 1.9379999999999997e-05, 1.9569999999999997e-05, 1.9759999999999997e-05]','{"device": "cpu", "threads": 2}','',1.79525095970032024387e+09);
INSERT INTO "trials" VALUES('digest-19','cpu x2',1,'gemm(m=8, n=8, k=8)','schedule 19','OK','[1.9999999999999998e-05, 2.02e-05, 2.0399999999999998e-05, 2.06e-05, 2.0799999999999997e-05]','{"device": "cpu", "threads": 2}','',1.79525095970035529135e+09);
INSERT INTO "trials" VALUES('digest-20','cpu x2',2,'gemv(m=8, k=8)','schedule 20','WRONG_ANSWER','[]','{"device": "cpu", "threads": 2}','it''s gone',1.79525095970038533208e+09);
INSERT INTO "trials" VALUES('digest-21','cpu x2',2,'gemm(m=8, n=8, k=8)','schedule 21','OK','[2.2e-05, 2.222e-05, 2.244e-05, 2.266e-05, 2.288e-05]','{"device": "cpu", "threads": 2}','',1.79525095970041656491e+09);
INSERT INTO "trials" VALUES('digest-22','cpu x2',2,'gemv(m=8, k=8)','schedule 22','OK','[2.3e-05, 2.323e-05, 2.346e-05, 2.3690000000000002e-05, 2.392e-05]','{"device": "cpu", "threads": 2}','',1.79525095970044708251e+09);
INSERT INTO "trials" VALUES('digest-23','cpu x2',2,'gemm(m=8, n=8, k=8)','schedule 23','OK','[2.4e-05, 2.4240000000000002e-05, 2.448e-05, 2.472e-05, 2.496e-05]','{"device": "cpu", "threads": 2}','',1.79525095970047712324e+09);
INSERT INTO "trials" VALUES('digest-24','cpu x2',2,'gemv(m=8, k=8)','schedule 24','OK','[2.4999999999999998e-05, 2.5249999999999997e-05, 2.55e-05, 2.575e-05, 2.6e-05]','{"device": "cpu", "threads": 2}','',1.7952509597005074024e+09);
INSERT INTO "trials" VALUES('digest-25','cpu x2',2,'gemm(m=8, n=8, k=8)','schedule 25','CRASHED','[]','{"device": "cpu", "threads": 2}','it''s gone',1.79525095970053458213e+09);
INSERT INTO "trials" VALUES('digest-26','cpu x2',2,'gemv(m=8, k=8)','schedule 26','OK','[2.7e-05, 2.7269999999999998e-05, 2.754e-05, 2.781e-05, 2.808e-05]','{"device": "cpu", "threads": 2}','',1.79525095970058202739e+09);
INSERT INTO "trials" VALUES('digest-27','cpu x2',2,'gemm(m=8, n=8, k=8)','schedule 27','OK','[2.8e-05, 2.828e-05, 2.856e-05, 2.8840000000000002e-05, 2.912e-05]','{"device": "cpu", "threads": 2}','',1.79525095970061254494e+09);
INSERT INTO "trials" VALUES('digest-28','cpu x2',2,'gemv(m=8, k=8)','schedule 28','OK','[2.9e-05, 2.929e-05, 2.958e-05, 2.987e-05, 3.0160000000000003e-05]','{"device": "cpu", "threads": 2}','',1.7952509597006464005e+09);
INSERT INTO "trials" VALUES('digest-29','cpu x2',2,'gemm(m=8, n=8, k=8)','schedule 29','OK','[2.9999999999999997e-05, 3.0299999999999998e-05, 3.06e-05, 3.09e-05, 3.12e-05]','{"device": "cpu", "threads": 2}','',1.79525095970067715646e+09);
INSERT INTO "trials" VALUES('digest-30','cpu x2',2,'gemv(m=8, k=8)','schedule 30','WRONG_ANSWER','[]','{"device": "cpu", "threads": 2}','it''s gone',1.7952509597007043361e+09);
INSERT INTO "trials" VALUES('digest-31','cpu x2',2,'gemm(m=8, n=8, k=8)','schedule 31','OK','[3.2e-05, 3.2319999999999995e-05, 3.264e-05, 3.2959999999999996e-05, 3.328e-05]','{"device": "cpu", "threads": 2}','',1.79525095970073533054e+09);
INSERT INTO "trials" VALUES('digest-32','cpu x2',2,'gemv(m=8, k=8)','schedule 32','OK','[3.2999999999999996e-05, 3.3329999999999994e-05, 3.366e-05, 3.399e-05, 3.432e-05]','{"device": "cpu", "threads": 2}','',1.79525095970076537131e+09);
INSERT INTO "trials" VALUES('digest-33','cpu x2',2,'gemm(m=8, n=8, k=8)','schedule 33','OK','[3.4e-05, 3.434e-05, 3.468e-05, 3.502e-05, 3.536e-05]','{"device": "cpu", "threads": 2}','',1.79525095970079541203e+09);
INSERT INTO "trials" VALUES('digest-34','cpu x2',2,'gemv(m=8, k=8)','schedule 34','OK','[3.5e-05, 3.535e-05, 3.57e-05, 3.6049999999999995e-05, 3.64e-05]','{"device": "cpu", "threads": 2}','',1.79525095970082545276e+09);
INSERT INTO "trials" VALUES('digest-35','cpu x2',2,'gemm(m=8, n=8, k=8)','schedule 35','CRASHED','[]','{"device": "cpu", "threads": 2}','it''s gone',1.79525095970085310937e+09);
INSERT INTO "trials" VALUES('digest-36','cpu x2',2,'gemv(m=8, k=8)','schedule 36','OK','[3.7e-05, 3.7369999999999996e-05, 3.774e-05, 3.811e-05, 3.848e-05]','{"device": "cpu", "threads": 2}','',1.79525095970088267331e+09);
INSERT INTO "trials" VALUES('digest-37','cpu x2',2,'gemm(m=8, n=8, k=8)','schedule 37','OK','[3.7999999999999995e-05, 3.8379999999999995e-05, 3.8759999999999995e-05, 3.9139999999999995e-05, 3.9519999999999994e-05]','{"device": "cpu", "threads": 2}','',1.7952509597009136677e+09);
INSERT INTO "trials" VALUES('digest-38','cpu x2',2,'gemv(m=8, k=8)','schedule 38','OK','[3.9e-05, 3.939e-05, 3.978e-05, 4.017e-05, 4.056e-05]','{"device": "cpu", "threads": 2}','',1.7952509597009735108e+09);
INSERT INTO "trials" VALUES('digest-39','cpu x2',2,'gemm(m=8, n=8, k=8)','schedule 39','OK','[3.9999999999999996e-05, 4.04e-05, 4.0799999999999996e-05, 4.12e-05, 4.1599999999999995e-05]','{"device": "cpu", "threads": 2}','',1.79525095970100784302e+09);
CREATE INDEX trials_by_operator ON trials (operator, device, protocol);
COMMIT;
