"""Fields of networks, layers and blobs (BVLC/caffe, caffe.proto of 2020). How a row reads: schema/table.py"""

MESSAGES = """
BlobShape: dim 1 int64*
BlobProto: shape 7 BlobShape, data 5 floats, diff 6 floats, double_data 8 doubles, double_diff 9 doubles,
    num 1 int32, channels 2 int32, height 3 int32, width 4 int32
Filler: type 1 string constant, value 2 float, min 3 float, max 4 float 1, mean 5 float, std 6 float 1,
    sparse 7 int32 -1, variance_norm 8 VarianceNorm FAN_IN
Net: name 1 string, input 3 string*, input_shape 8 BlobShape*, input_dim 4 int32*, force_backward 5 bool,
    state 6 NetState, debug_info 7 bool, layer 100 Layer*, layers 2 V1Layer*
NetState: phase 1 Phase TEST, level 2 int32, stage 3 string*
NetStateRule: phase 1 Phase, min_level 2 int32, max_level 3 int32, stage 4 string*, not_stage 5 string*
ParamSpec: name 1 string, share_mode 2 DimCheckMode, lr_mult 3 float 1.0, decay_mult 4 float 1.0
Layer: name 1 string, type 2 string, bottom 3 string*, top 4 string*, phase 10 Phase, loss_weight 5 float*,
    param 6 ParamSpec*, blobs 7 BlobProto*, propagate_down 11 bool*, include 8 NetStateRule*,
    exclude 9 NetStateRule*, transform_param 100 Transformation, loss_param 101 Loss,
    accuracy_param 102 Accuracy, argmax_param 103 ArgMax, batch_norm_param 139 BatchNorm, bias_param 141 Bias,
    clip_param 148 Clip, concat_param 104 Concat, contrastive_loss_param 105 ContrastiveLoss,
    convolution_param 106 Convolution, crop_param 144 Crop, data_param 107 Data, dropout_param 108 Dropout,
    dummy_data_param 109 DummyData, eltwise_param 110 Eltwise, elu_param 140 ELU, embed_param 137 Embed,
    exp_param 111 Exp, flatten_param 135 Flatten, hdf5_data_param 112 HDF5Data,
    hdf5_output_param 113 HDF5Output, hinge_loss_param 114 HingeLoss, image_data_param 115 ImageData,
    infogain_loss_param 116 InfogainLoss, inner_product_param 117 InnerProduct, input_param 143 Input,
    log_param 134 Log, lrn_param 118 LRN, memory_data_param 119 MemoryData, mvn_param 120 MVN,
    parameter_param 145 Parameter, pooling_param 121 Pooling, power_param 122 Power, prelu_param 131 PReLU,
    python_param 130 Python, recurrent_param 146 Recurrent, reduction_param 136 Reduction, relu_param 123 ReLU,
    reshape_param 133 Reshape, scale_param 142 Scale, sigmoid_param 124 Sigmoid, softmax_param 125 Softmax,
    spp_param 132 SPP, slice_param 126 Slice, swish_param 147 Swish, tanh_param 127 TanH,
    threshold_param 128 Threshold, tile_param 138 Tile, window_data_param 129 WindowData,
    permute_param 202 Permute, shuffle_channel_param 0 ShuffleChannel
Transformation: scale 1 float 1, mirror 2 bool, crop_size 3 uint32, mean_file 4 string, mean_value 5 float*,
    force_color 6 bool, force_gray 7 bool
Loss: ignore_label 1 int32, normalization 3 NormalizationMode VALID, normalize 2 bool
"""

ENUMS = """
Phase: TRAIN 0, TEST 1
DimCheckMode: STRICT 0, PERMISSIVE 1
VarianceNorm: FAN_IN 0, FAN_OUT 1, AVERAGE 2
NormalizationMode: FULL 0, VALID 1, BATCH_SIZE 2, NONE 3
"""
