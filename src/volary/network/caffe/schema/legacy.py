"""Fields of layers of old files: V1 (`layers`, 2014) and V0 (2013). How a row reads: schema/table.py"""

MESSAGES = """
V1Layer: bottom 2 string*, top 3 string*, name 4 string, include 32 NetStateRule*, exclude 33 NetStateRule*,
    type 5 LayerType, blobs 6 BlobProto*, param 1001 string*, blob_share_mode 1002 DimCheckMode*,
    blobs_lr 7 float*, weight_decay 8 float*, loss_weight 35 float*, accuracy_param 27 Accuracy,
    argmax_param 23 ArgMax, concat_param 9 Concat, contrastive_loss_param 40 ContrastiveLoss,
    convolution_param 10 Convolution, data_param 11 Data, dropout_param 12 Dropout,
    dummy_data_param 26 DummyData, eltwise_param 24 Eltwise, exp_param 41 Exp, hdf5_data_param 13 HDF5Data,
    hdf5_output_param 14 HDF5Output, hinge_loss_param 29 HingeLoss, image_data_param 15 ImageData,
    infogain_loss_param 16 InfogainLoss, inner_product_param 17 InnerProduct, lrn_param 18 LRN,
    memory_data_param 22 MemoryData, mvn_param 34 MVN, pooling_param 19 Pooling, power_param 21 Power,
    relu_param 30 ReLU, sigmoid_param 38 Sigmoid, softmax_param 39 Softmax, slice_param 31 Slice,
    tanh_param 37 TanH, threshold_param 25 Threshold, window_data_param 20 WindowData,
    transform_param 36 Transformation, loss_param 42 Loss, layer 1 V0Layer
V0Layer: name 1 string, type 2 string, num_output 3 uint32, biasterm 4 bool true, weight_filler 5 Filler,
    bias_filler 6 Filler, pad 7 uint32, kernelsize 8 uint32, group 9 uint32 1, stride 10 uint32 1,
    pool 11 PoolMethod MAX, dropout_ratio 12 float 0.5, local_size 13 uint32 5, alpha 14 float 1.0,
    beta 15 float 0.75, k 22 float 1.0, source 16 string, scale 17 float 1, meanfile 18 string,
    batchsize 19 uint32, cropsize 20 uint32, mirror 21 bool, blobs 50 BlobProto*, blobs_lr 51 float*,
    weight_decay 52 float*, rand_skip 53 uint32, det_fg_threshold 54 float 0.5, det_bg_threshold 55 float 0.5,
    det_fg_fraction 56 float 0.25, det_context_pad 58 uint32, det_crop_mode 59 string warp, new_num 60 int32,
    new_channels 61 int32, new_height 62 int32, new_width 63 int32, shuffle_images 64 bool,
    concat_dim 65 uint32 1, hdf5_output_param 1001 HDF5Output
"""

ENUMS = """
LayerType: NONE 0, ABSVAL 35, ACCURACY 1, ARGMAX 30, BNLL 2, CONCAT 3, CONTRASTIVE_LOSS 37, CONVOLUTION 4,
    DATA 5, DECONVOLUTION 39, DROPOUT 6, DUMMY_DATA 32, EUCLIDEAN_LOSS 7, ELTWISE 25, EXP 38, FLATTEN 8,
    HDF5_DATA 9, HDF5_OUTPUT 10, HINGE_LOSS 28, IM2COL 11, IMAGE_DATA 12, INFOGAIN_LOSS 13, INNER_PRODUCT 14,
    LRN 15, MEMORY_DATA 29, MULTINOMIAL_LOGISTIC_LOSS 16, MVN 34, POOLING 17, POWER 26, RELU 18, SIGMOID 19,
    SIGMOID_CROSS_ENTROPY_LOSS 27, SILENCE 36, SOFTMAX 20, SOFTMAX_LOSS 21, SPLIT 22, SLICE 33, TANH 23,
    WINDOW_DATA 24, THRESHOLD 31
"""
