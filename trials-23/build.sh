#!/bin/bash
# build.sh NAME SOURCE FLAGS...: $R/v/NAME.so with C entries, bf16 alone
R=$(cd $(dirname $0); pwd); name=$1; src=$2; shift 2
mkdir -p $R/v /tmp/w
w=/tmp/w/$name.cu
sed -e 's/^const Registration registration.*$/__attribute__((unused)) const int unused_support = sizeof(supports);/' -e "s/attention::with_types_of/attention::with_bf16_types_of/" $src > $w
python3 - $w <<'P'
import sys,re
p=sys.argv[1]; s=open(p).read()
i=s.rindex("}  // namespace\n}  // namespace flashladder")
tail='''
}  // namespace
extern "C" __attribute__((visibility("default"))) std::size_t fl_scratch(int b,int h,int kh,int nq,int nk,int d,int causal){
  AttentionShape s{}; s.dtype=DType::bf16; s.batch=b; s.heads=h; s.kv_heads=kh; s.n_q=nq; s.n_k=nk; s.head_dim=d; s.causal=causal; return scratch_bytes(s);}
extern "C" __attribute__((visibility("default"))) int fl_launch(int b,int h,int kh,int nq,int nk,int d,int causal,float scale,void*Q,void*K,void*V,void*O,void*dO,float*lse,void*dQ,void*dK,void*dV,void*scratch,cudaStream_t st){
  AttentionShape s{}; s.dtype=DType::bf16; s.batch=b; s.heads=h; s.kv_heads=kh; s.n_q=nq; s.n_k=nk; s.head_dim=d; s.causal=causal;
  BackwardArgs a; a.shape=s; a.Q=Q;a.K=K;a.V=V;a.O=O;a.dO=dO;a.lse=lse;a.dQ=dQ;a.dK=dK;a.dV=dV;a.scale=scale;a.scratch=scratch;a.stream=st;
  Strides q{}, k{}; q.row=d; q.head=(long)nq*d; q.batch=(long)h*nq*d; k.row=d; k.head=(long)nk*d; k.batch=(long)kh*nk*d;
  a.Q_strides=a.O_strides=a.dO_strides=a.dQ_strides=q; a.K_strides=a.V_strides=a.dK_strides=a.dV_strides=k;
  try { launch(a); } catch (std::exception& e) { fprintf(stderr,"%s\\n",e.what()); return 1; } return 0; }
STAMPS}  // namespace flashladder::attention_backward
'''
tail=tail.replace("STAMPS", """extern "C" __attribute__((visibility("default"))) void fl_stamps(void* to) { cudaMemcpyFromSymbol(to, stamps, sizeof stamps); }
""" if "stamps[1 <<" in s else "")
open(p,"w").write(s[:i]+tail)
P
nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a -DFLASHLADDER_GPU -I$R/tree/common -lineinfo -Xfatbin=-compress-all \
  -Xptxas -v -shared -Xcompiler -fPIC,-fvisibility=hidden -cudart static -lpthread -o $R/v/$name.so $w "$@" > /tmp/w/$name.log 2>&1
echo "$name rc $?"; c++filt < /tmp/w/$name.log | grep -iE "error|C75|serializ|warning" | grep -v declared | head -8
c++filt < /tmp/w/$name.log | grep -A2 "Compiling entry.*\(writer\|warpgroup_backward\|finish\)" | grep -E "Compiling|spill|Used" | sed -e 's/.*namespace)::\([^(]*\)(.*/\1/' | paste - - - | awk '{print}' | cut -c1-220
