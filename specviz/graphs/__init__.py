"""Static shapes: everything that changes from round to round is a tensor's contents, so that a GPU replays what it recorded once.

capture     any function over tensors -> a Replay (a CUDA graph; on a CPU the function itself over the same fixed tensors)
tree_mask   positions and mask of a tree, made on the device from its parents
lease       the buffers and graphs that one run at a time uses
verify      a target's verification by replay: which envelope a tree goes into
grow        a whole draft on the device, as `dynamic` makes it, and the tree read back from it
draft       a head's drafting by replay: the leases of its rows, and falling back
"""
