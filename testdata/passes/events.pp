// Which streams wait, which waits others imply, and the members of overlap blocks on two streams.
// RUN: %ppc dump %root/testdata/models/mlp.pp -D stages=4 --microbatches=4 --ranks=2 --schedule=dualpipe_v --after=events --pretty --rank=0 --verify | %FileCheck
// RUN: %ppc dump %root/testdata/models/mlp.pp -D stages=4 --microbatches=4 --ranks=2 --schedule=dualpipe_v --rank=0 --verify | grep -q 'streams = array<i64: 0, 0, 0, 0, 0, 0, 0, 2, 5,.*waits = array<i64: 1, -1, 1, -1, 0, -1,'
// RUN: ! %ppc dump %root/testdata/models/mlp.pp --schedule=gpipe | grep 'streams = '
// RUN: %ppc compile %root/testdata/models/mlp.pp -D stages=4 --microbatches=4 --ranks=2 --schedule=dualpipe_v -o %d/out && grep -q '{PP_AWAIT_SEND, 1, 0}, *.* before 4: y, microbatch 1; implied by the receive of y, microbatch 0 ' %d/out/rank_0.c
// RUN: grep -q '{PP_AWAIT_RECEIVE, 9, 2}, .* before 10: dy, microbatch 0 ' %d/out/rank_0.c && grep -q 'PP_JOIN | PP_ON_SECOND},$' %d/out/rank_0.c
// RUN: grep -A2 '"await_send",' %d/out/plan.json | tr -d ' \n' | grep -q '"await_send",0,1'
// CHECK: rank 0, stages 0 3: 24 actions
// CHECK: 0 fwd stage 0 microbatch 0 after: send y:0 to 1 #
// CHECK: 1 fwd stage 0 microbatch 1 after: send y:1 to 1, receive y:0 from 1 (implied) #
// CHECK: 4 bwd_input stage 3 microbatch 0 before: await sent y:1 to 1 (implied by y:0) after:
// CHECK: 8 bwd stage 3 microbatch 1, second stream after: receive y:2 from 1 (implied by y:3), send dy:1 to 1 (second stream), receive dy:0 from 1 (implied)
// CHECK: 10 bwd stage 0 microbatch 0, second stream before: await dy:0 (second stream) after:
