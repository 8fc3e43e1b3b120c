"""Fields of solvers and their snapshots (BVLC/caffe, caffe.proto of 2020). How a row reads: schema/table.py"""

MESSAGES = """
Solver: net 24 string, net_param 25 Net, train_net 1 string, test_net 2 string*, train_net_param 21 Net,
    test_net_param 22 Net*, train_state 26 NetState, test_state 27 NetState*, test_iter 3 int32*,
    test_interval 4 int32, test_compute_loss 19 bool, test_initialization 32 bool true, base_lr 5 float,
    display 6 int32, average_loss 33 int32 1, max_iter 7 int32, iter_size 36 int32 1, lr_policy 8 string,
    gamma 9 float, power 10 float, momentum 11 float, weight_decay 12 float, regularization_type 29 string L2,
    stepsize 13 int32, stepvalue 34 int32*, clip_gradients 35 float -1, snapshot 14 int32,
    snapshot_prefix 15 string, snapshot_diff 16 bool, snapshot_format 37 SnapshotFormat BINARYPROTO,
    solver_mode 17 SolverMode GPU, device_id 18 int32, random_seed 20 int64 -1, type 40 string SGD,
    delta 31 float 1e-8, momentum2 39 float 0.999, rms_decay 38 float 0.99, debug_info 23 bool,
    snapshot_after_train 28 bool true, solver_type 30 SolverType SGD, layer_wise_reduce 41 bool true,
    weights 42 string*
SolverState: iter 1 int32, learned_net 2 string, history 3 BlobProto*, current_step 4 int32
"""

ENUMS = """
SnapshotFormat: HDF5 0, BINARYPROTO 1
SolverMode: CPU 0, GPU 1
SolverType: SGD 0, NESTEROV 1, ADAGRAD 2, RMSPROP 3, ADADELTA 4, ADAM 5
"""
