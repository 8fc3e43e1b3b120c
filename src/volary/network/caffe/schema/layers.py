"""Fields of what each layer type takes (BVLC/caffe, caffe.proto of 2020). How a row reads: schema/table.py

The field 0 is one of forks that Volary knows in text alone: its number differs among them.
"""

MESSAGES = """
Accuracy: top_k 1 uint32 1, axis 2 int32 1, ignore_label 3 int32
ArgMax: out_max_val 1 bool, top_k 2 uint32 1, axis 3 int32
Clip: min 1 float, max 2 float
Concat: axis 2 int32 1, concat_dim 1 uint32 1
BatchNorm: use_global_stats 1 bool, moving_average_fraction 2 float 0.999, eps 3 float 1e-5
Bias: axis 1 int32 1, num_axes 2 int32 1, filler 3 Filler
ContrastiveLoss: margin 1 float 1.0, legacy_version 2 bool
Convolution: num_output 1 uint32, bias_term 2 bool true, pad 3 uint32*, kernel_size 4 uint32*, stride 6 uint32*,
    dilation 18 uint32*, pad_h 9 uint32, pad_w 10 uint32, kernel_h 11 uint32, kernel_w 12 uint32,
    stride_h 13 uint32, stride_w 14 uint32, group 5 uint32 1, weight_filler 7 Filler, bias_filler 8 Filler,
    engine 15 Engine DEFAULT, axis 16 int32 1, force_nd_im2col 17 bool
Crop: axis 1 int32 2, offset 2 uint32*
Data: source 1 string, batch_size 4 uint32, rand_skip 7 uint32, backend 8 DB LEVELDB, scale 2 float 1,
    mean_file 3 string, crop_size 5 uint32, mirror 6 bool, force_encoded_color 9 bool, prefetch 10 uint32 4
Dropout: dropout_ratio 1 float 0.5
DummyData: data_filler 1 Filler*, shape 6 BlobShape*, num 2 uint32*, channels 3 uint32*, height 4 uint32*,
    width 5 uint32*
Eltwise: operation 1 EltwiseOp SUM, coeff 2 float*, stable_prod_grad 3 bool true
ELU: alpha 1 float 1
Embed: num_output 1 uint32, input_dim 2 uint32, bias_term 3 bool true, weight_filler 4 Filler,
    bias_filler 5 Filler
Exp: base 1 float -1.0, scale 2 float 1.0, shift 3 float 0.0
Flatten: axis 1 int32 1, end_axis 2 int32 -1
HDF5Data: source 1 string, batch_size 2 uint32, shuffle 3 bool
HDF5Output: file_name 1 string
HingeLoss: norm 1 Norm L1
ImageData: source 1 string, batch_size 4 uint32 1, rand_skip 7 uint32, shuffle 8 bool, new_height 9 uint32,
    new_width 10 uint32, is_color 11 bool true, scale 2 float 1, mean_file 3 string, crop_size 5 uint32,
    mirror 6 bool, root_folder 12 string
InfogainLoss: source 1 string, axis 2 int32 1
InnerProduct: num_output 1 uint32, bias_term 2 bool true, weight_filler 3 Filler, bias_filler 4 Filler,
    axis 5 int32 1, transpose 6 bool
Input: shape 1 BlobShape*
Log: base 1 float -1.0, scale 2 float 1.0, shift 3 float 0.0
LRN: local_size 1 uint32 5, alpha 2 float 1.0, beta 3 float 0.75, norm_region 4 NormRegion ACROSS_CHANNELS,
    k 5 float 1.0, engine 6 Engine DEFAULT
MemoryData: batch_size 1 uint32, channels 2 uint32, height 3 uint32, width 4 uint32
MVN: normalize_variance 1 bool true, across_channels 2 bool, eps 3 float 1e-9
Parameter: shape 1 BlobShape
Pooling: pool 1 PoolMethod MAX, pad 4 uint32, pad_h 9 uint32, pad_w 10 uint32, kernel_size 2 uint32,
    kernel_h 5 uint32, kernel_w 6 uint32, stride 3 uint32 1, stride_h 7 uint32, stride_w 8 uint32,
    engine 11 Engine DEFAULT, global_pooling 12 bool, round_mode 13 RoundMode CEIL, ceil_mode 0 bool true
Power: power 1 float 1.0, scale 2 float 1.0, shift 3 float 0.0
Python: module 1 string, layer 2 string, param_str 3 string, share_in_parallel 4 bool
Recurrent: num_output 1 uint32, weight_filler 2 Filler, bias_filler 3 Filler, debug_info 4 bool,
    expose_hidden 5 bool
Reduction: operation 1 ReductionOp SUM, axis 2 int32, coeff 3 float 1.0
ReLU: negative_slope 1 float, engine 2 Engine DEFAULT
Reshape: shape 1 BlobShape, axis 2 int32, num_axes 3 int32 -1
Scale: axis 1 int32 1, num_axes 2 int32 1, filler 3 Filler, bias_term 4 bool, bias_filler 5 Filler
Sigmoid: engine 1 Engine DEFAULT
Slice: axis 3 int32 1, slice_point 2 uint32*, slice_dim 1 uint32 1
Softmax: engine 1 Engine DEFAULT, axis 2 int32 1
Swish: beta 1 float 1
TanH: engine 1 Engine DEFAULT
Tile: axis 1 int32 1, tiles 2 int32
Threshold: threshold 1 float
WindowData: source 1 string, scale 2 float 1, mean_file 3 string, batch_size 4 uint32, crop_size 5 uint32,
    mirror 6 bool, fg_threshold 7 float 0.5, bg_threshold 8 float 0.5, fg_fraction 9 float 0.25,
    context_pad 10 uint32, crop_mode 11 string warp, cache_images 12 bool, root_folder 13 string
SPP: pyramid_height 1 uint32, pool 2 PoolMethod MAX, engine 6 Engine DEFAULT
PReLU: filler 1 Filler, channel_shared 2 bool
Permute: order 1 uint32*
ShuffleChannel: group 1 uint32 1
"""

ENUMS = """
Engine: DEFAULT 0, CAFFE 1, CUDNN 2
DB: LEVELDB 0, LMDB 1
EltwiseOp: PROD 0, SUM 1, MAX 2
Norm: L1 1, L2 2
NormRegion: ACROSS_CHANNELS 0, WITHIN_CHANNEL 1
PoolMethod: MAX 0, AVE 1, STOCHASTIC 2
RoundMode: CEIL 0, FLOOR 1
ReductionOp: SUM 1, ASUM 2, SUMSQ 3, MEAN 4
"""
