terraform {
  required_version = ">= 1.6"
  required_providers {
    openstack = {
      source  = "terraform-provider-openstack/openstack"
      version = "~> 3.4"
    }
  }
}

# Credentials come from the environment or clouds.yaml (OS_CLOUD): none are in these files.
provider "openstack" {}
