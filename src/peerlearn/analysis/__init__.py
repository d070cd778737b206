"""What trained networks know: the analyses of the paper, from runs to panels; a file each."""

ANALYSES = {
    "loss": "loss over all images of the current task, along the stream (needs --current-loss)",
    "entropy": "how sure networks are of ever harder views of the training images",
    "tsne": "features of the images in memory, in the plane",
    "gradcam": "where networks look: Grad-CAM++ on images that all runs get right",
    "confusion": "which classes are taken for which",
    "calibration": "whether answers are as often right as they are sure",
    "disagreement": "how often peers differ, along the stream (needs --disagreement)",
    "chain": "the views of the distillation chain",
    "time": "training time of each method",
}
