module example.com/cluster-apiserver/apitest

go 1.22
